// Command vault is a Vault server for tests. It keeps everything in memory, starts sealed and uninitialized, and has
// the secrets engine pki and the auth method kubernetes. Its only argument is its address, such as 127.0.0.1:8200.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	kubernetes "github.com/hashicorp/vault-plugin-auth-kubernetes"
	"github.com/hashicorp/vault/builtin/logical/pki"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/internalshared/configutil"
	"github.com/hashicorp/vault/sdk/helper/consts"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical/inmem"
	"github.com/hashicorp/vault/vault"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: vault ADDRESS")
		os.Exit(2)
	}
	if err := serve(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func serve(address string) error {
	logger := hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr})
	storage, err := inmem.NewInmem(nil, logger)
	if err != nil {
		return err
	}
	core, err := vault.NewCore(&vault.CoreConfig{
		Physical: storage, Logger: logger, DisableMlock: true, BuiltinRegistry: registry{},
		LogicalBackends:    map[string]logical.Factory{"pki": pki.Factory},
		CredentialBackends: map[string]logical.Factory{"kubernetes": kubernetes.Factory},
	})
	if err != nil {
		return err
	}
	defer func() { _ = core.Shutdown() }()
	server := &http.Server{
		Addr: address, ReadHeaderTimeout: 10 * time.Second,
		Handler: vaulthttp.Handler.Handler(&vault.HandlerProperties{
			Core: core, ListenerConfig: &configutil.Listener{Address: address},
		}),
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	return nil
}

// registry has the built-in plugins.
type registry struct{}

var plugins = map[consts.PluginType]map[string]logical.Factory{
	consts.PluginTypeSecrets: {"pki": pki.Factory}, consts.PluginTypeCredential: {"kubernetes": kubernetes.Factory},
}

func (registry) Get(name string, kind consts.PluginType) (func() (any, error), bool) {
	factory, ok := plugins[kind][name]
	return func() (any, error) { return factory, nil }, ok
}

func (registry) Contains(name string, kind consts.PluginType) bool { return plugins[kind][name] != nil }

func (registry) Keys(kind consts.PluginType) []string {
	var names []string
	for name := range plugins[kind] {
		names = append(names, name)
	}
	return names
}

func (registry) DeprecationStatus(name string, kind consts.PluginType) (consts.DeprecationStatus, bool) {
	return consts.Supported, plugins[kind][name] != nil
}

func (registry) IsBuiltinEntPlugin(string, consts.PluginType) bool { return false }
