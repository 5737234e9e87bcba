// The name that a broker's certificate has to have. OpenSSL's SSL_set1_host takes an address, too, and compares it
// with the addresses of the certificate; AWS-LC's takes names alone, so no certificate would have it.

#include <openssl/err.h>
#include <openssl/ssl.h>

extern "C" int tidegate_set1_host(SSL *ssl, const char *name) {
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name)) {
    return 1;
  }
  ERR_clear_error();
  return SSL_set1_host(ssl, name);
}
