package dataimport

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// HandOverName is the name of the handler that ends imports.
const HandOverName = vitistack.HandlerHandOver

// HandOver is the pure part of the handler that ends imports: it wants nothing.
func HandOver() apply.Resource[*vitistack.State] {
	return apply.Resource[*vitistack.State]{
		Handler: HandOverName, Ends: finished,
		Build: func(*vitistack.State) (apply.Desired, error) { return apply.Desired{}, nil },
	}
}

// finished are the DataVolumes whose observed status says that they have done their work.
func finished(s *vitistack.State) []client.Object {
	var objects []client.Object
	for _, dv := range s.FinishedImports() {
		objects = append(objects, dv)
	}
	return objects
}

// NewHandOver returns the handler that deletes DataVolumes that have filled their claims, and keeps the claims. It
// needs nothing else to be right with the Machine, because until then the data of a disk depends on the DataVolume: a
// removal of CDI takes both. engine is as in New.
func NewHandOver(engine func(*vitistack.State) *apply.Engine) chain.Handler[*vitistack.State] {
	return handOver{engine: engine}
}

type handOver struct {
	engine func(*vitistack.State) *apply.Engine
}

// Name is the handler's name.
func (handOver) Name() string { return HandOverName }

// Declared returns the pure part of the handler.
func (handOver) Declared() apply.Resource[*vitistack.State] { return HandOver() }

// EnsureCreated deletes what has done its work.
func (h handOver) EnsureCreated(ctx context.Context, s *vitistack.State) (chain.Outcome, error) {
	engine := connected(h.engine, s)
	if engine == nil || len(s.FinishedImports()) == 0 {
		return chain.NotConfigured(), nil
	}
	return HandOver().Handle(engine).EnsureCreated(ctx, s)
}

// EnsureDeleted does nothing: what a Machine that is deleted has imported is deleted with it.
func (handOver) EnsureDeleted(context.Context, *vitistack.State) (chain.Outcome, error) {
	return chain.Done(), nil
}
