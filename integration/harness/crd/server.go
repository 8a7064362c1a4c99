// Package crd tests CustomResourceDefinitions at a real API server: what it accepts, what it says against the rest, what
// kubectl prints, and whether a test runs into every rule.
package crd

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kvm-operator/kvm-operator/integration/harness/tools"
)

// Run runs the tests of a package at an API server that has the definitions in the given files and folders, and returns
// the exit code of the test program. The programs are those of tools.ForEnvtest. Connect is called once the server serves,
// before the tests. With -short it leaves the package out.
func Run(m *testing.M, definitions []string, connect func(*rest.Config) error) int {
	flag.Parse()
	if testing.Short() {
		fmt.Println("left out by -short: these tests need the API server of make tools")
		return 0
	}
	if err := tools.ForEnvtest(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	environment := &envtest.Environment{CRDDirectoryPaths: definitions, ErrorIfCRDPathMissing: true}
	defer func() { _ = environment.Stop() }()
	config, err := environment.Start()
	if err != nil {
		fmt.Fprintln(os.Stderr, "the API server does not start or refuses the CRDs:", err)
		return 1
	}
	if err := connect(config); err != nil {
		fmt.Fprintln(os.Stderr, "the API server runs and cannot be prepared:", err)
		return 1
	}
	return m.Run()
}

// Server is a client of an API server that refuses fields which a definition does not have.
type Server struct {
	client.Client

	// Config leads to the server.
	Config *rest.Config
}

// Connect returns a client for the types that the functions add.
func Connect(config *rest.Config, types ...func(*runtime.Scheme) error) (Server, error) {
	scheme := runtime.NewScheme()
	for _, add := range types {
		if err := add(scheme); err != nil {
			return Server{}, fmt.Errorf("adding types: %w", err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return Server{}, fmt.Errorf("creating a client: %w", err)
	}
	return Server{Client: client.WithFieldValidation(c, metav1.FieldValidationStrict), Config: config}, nil
}

// Store creates the object, returns it as it is stored, and deletes it when the test is over.
func (s Server) Store(t *testing.T, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	created := object.DeepCopy()
	if err := s.Create(t.Context(), created); err != nil {
		t.Fatalf("the API server refuses the object: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Delete(context.Background(), created.DeepCopy()); err != nil {
			t.Error(err)
		}
	})
	return created
}

// StoreWithStatus is Store, and writes the status of the object too.
func (s Server) StoreWithStatus(t *testing.T, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	created := s.Store(t, object)
	created.Object["status"] = object.Object["status"]
	if err := s.Status().Update(t.Context(), created); err != nil {
		t.Fatal(err)
	}
	return created
}

// Columns is the object at a path of the API as kubectl get prints it, and what it prints in addition with -o wide.
func (s Server) Columns(t *testing.T, path string) (narrow, wide map[string]any) {
	t.Helper()
	web, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(s.Config.Host, "/")+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
	response, err := web.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var table metav1.Table
	if err := json.NewDecoder(response.Body).Decode(&table); err != nil {
		t.Fatal(err)
	}
	narrow, wide = map[string]any{}, map[string]any{}
	for i, column := range table.ColumnDefinitions {
		if column.Priority == 0 {
			narrow[column.Name] = table.Rows[0].Cells[i]
		} else {
			wide[column.Name] = table.Rows[0].Cells[i]
		}
	}
	return narrow, wide
}

// AllColumns is the object at a path of the API as kubectl get -o wide prints it.
func (s Server) AllColumns(t *testing.T, path string) map[string]any {
	t.Helper()
	all, wide := s.Columns(t, path)
	maps.Copy(all, wide)
	return all
}
