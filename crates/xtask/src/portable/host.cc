// Where AWS-LC differs from OpenSSL 3 in what librdkafka relies on: its build has these in place of the functions.

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

// The name that a broker's certificate has to have. OpenSSL's SSL_set1_host takes an address, too, and compares it
// with the addresses of the certificate; AWS-LC's takes names alone, so no certificate would have it.
extern "C" int tidegate_set1_host(SSL *ssl, const char *name) {
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name)) {
    return 1;
  }
  ERR_clear_error();
  return SSL_set1_host(ssl, name);
}

// OpenSSL refuses by itself what its security level forbids, by default level 2 from 3.2 on, and in Debian before.
// AWS-LC has no such levels.
static int is_strong(int ok, X509_STORE_CTX *ctx) {
  if (!ok) {
    return 0;
  }
  X509 *cert = X509_STORE_CTX_get_current_cert(ctx);
  STACK_OF(X509) *chain = X509_STORE_CTX_get0_chain(ctx);
  EVP_PKEY *key = X509_get0_pubkey(cert);
  bool is_root = cert == sk_X509_value(chain, sk_X509_num(chain) - 1);
  int by = X509_get_signature_nid(cert);
  bool is_weak = key == nullptr || (EVP_PKEY_id(key) == EVP_PKEY_RSA && EVP_PKEY_bits(key) < 2048) ||
                 (!is_root && (by == NID_sha1WithRSAEncryption || by == NID_ecdsa_with_SHA1));
  if (is_weak) {
    X509_STORE_CTX_set_error(ctx, X509_V_ERR_CERT_REJECTED);
  }
  return !is_weak;
}

// No TLS before 1.2, no signature of a handshake by SHA-1, no weak certificate.
extern "C" SSL_CTX *tidegate_ctx_new(const SSL_METHOD *method) {
  static const uint16_t kVerified[] = {
      SSL_SIGN_ECDSA_SECP256R1_SHA256, SSL_SIGN_RSA_PSS_RSAE_SHA256, SSL_SIGN_RSA_PKCS1_SHA256,
      SSL_SIGN_ECDSA_SECP384R1_SHA384, SSL_SIGN_RSA_PSS_RSAE_SHA384, SSL_SIGN_RSA_PKCS1_SHA384,
      SSL_SIGN_ECDSA_SECP521R1_SHA512, SSL_SIGN_RSA_PSS_RSAE_SHA512, SSL_SIGN_RSA_PKCS1_SHA512,
      SSL_SIGN_ED25519,
  };
  SSL_CTX *ctx = SSL_CTX_new(method);
  if (ctx == nullptr) {
    return nullptr;
  }
  if (!SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) ||
      !SSL_CTX_set_verify_algorithm_prefs(ctx, kVerified, sizeof(kVerified) / sizeof(*kVerified))) {
    SSL_CTX_free(ctx);
    return nullptr;
  }
  X509_STORE_set_verify_cb(SSL_CTX_get_cert_store(ctx), is_strong);
  return ctx;
}
