//go:build schemas

package main

// Never compiled: so that go.mod and go.sum pin the module whose files are read, `go mod download` finds them.
import _ "sigs.k8s.io/kubectl-validate/pkg/openapiclient"
