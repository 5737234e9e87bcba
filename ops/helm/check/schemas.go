//go:build schemas

package main

// This file is never compiled. It makes go.mod and go.sum pin the module whose files are read.
import _ "sigs.k8s.io/kubectl-validate/pkg/openapiclient"
