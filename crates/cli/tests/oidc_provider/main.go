// Package main is an OpenID provider: the example server of zitadel/oidc, with the claim `groups` in ID
// tokens and an address to which a logout leads. It prints its own address once it listens. The tests of
// logins use it.
//
//	oidc_provider ADDRESS CONSOLE-URL
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(address, console string) error {
	issuer := "http://" + address
	storage.RegisterClients(storage.WebClient("console", "secret", console+"/api/oidc/callback"))
	users := storage.NewUserStore(issuer)
	kept := &store{storage.NewStorage(users), users, console + "/"}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println(issuer)
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	return http.Serve(listener, exampleop.SetupServer(issuer, kept, logger, false))
}

// store adds to the example's storage what providers in use have.
type store struct {
	*storage.Storage
	users storage.UserStore
	back  string
}

// SetUserinfoFromRequest says what an ID token contains.
func (s *store) SetUserinfoFromRequest(ctx context.Context, info *oidc.UserInfo, request op.IDTokenRequest, scopes []string) error {
	groups := []string{"everybody"}
	if s.users.GetUserByID(request.GetSubject()).IsAdmin {
		groups = append(groups, "search-admins")
	}
	info.AppendClaims("groups", groups)
	return s.Storage.SetUserinfoFromRequest(ctx, info, request, scopes)
}

// GetClientByClientID returns the client as the console is registered.
func (s *store) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	found, err := s.Storage.GetClientByClientID(ctx, id)
	if err != nil {
		return nil, err
	}
	return &client{found, s.back}, nil
}

type client struct {
	op.Client
	back string
}

// PostLogoutRedirectURIs returns where a logout may lead.
func (c *client) PostLogoutRedirectURIs() []string { return []string{c.back} }

// IDTokenUserinfoClaimsAssertion puts the user's name into the ID token, where the console reads it.
func (c *client) IDTokenUserinfoClaimsAssertion() bool { return true }
