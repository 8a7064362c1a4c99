package apply

import (
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Rendered are the objects that one handler wants.
type Rendered struct {
	// Handler is the handler's name, and Owner the value of the objects' annotation.
	Handler, Owner string
	Objects        []client.Object
}

// Render returns what resources want for a state, without a cluster. The error contains what could not be rendered, and
// known errors of the state; the rest is returned nonetheless.
func Render[T Owned](resources []Resource[T], state T, known ...error) ([]Rendered, error) {
	var all []Rendered
	errs := known
	for _, resource := range resources {
		desired, err := resource.Build(state)
		owner := state.Owner(resource.Handler)
		for _, object := range desired.Objects {
			SetOwner(object, owner)
		}
		all = append(all, Rendered{Handler: resource.Handler, Owner: owner.String(), Objects: desired.Objects})
		errs = append(errs, err)
	}
	return all, joinDistinct(errs)
}

// joinDistinct joins errors, each text once, because several handlers often miss the same thing.
func joinDistinct(errs []error) error {
	seen := map[string]bool{}
	var distinct []error
	for _, err := range errs {
		if err != nil && !seen[err.Error()] {
			seen[err.Error()] = true
			distinct = append(distinct, err)
		}
	}
	return errors.Join(distinct...)
}
