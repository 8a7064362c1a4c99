package workload

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/wire"
)

const (
	// pageSize is how many objects are requested at once. If a page is too large, it is requested with fewer.
	pageSize = 100
	// mostPages bounds the number of pages of one list.
	mostPages = 500
	// mostListed is how much memory a list that is read from the API server may take.
	mostListed = 16 << 20
)

// pagedReader reads lists in pages, so that no response is large, and bounds the whole list.
type pagedReader struct{ client.Reader }

// Get reads an object.
func (r pagedReader) Get(ctx context.Context, name client.ObjectKey, into client.Object, options ...client.GetOption) error {
	ctx, done := granted(ctx)
	defer done()
	return r.Reader.Get(ctx, name, into, options...)
}

// List reads all objects of a list.
func (r pagedReader) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	var all []runtime.Object
	size, token, spent := int64(pageSize), "", int64(0)
	for range mostPages {
		page := into.DeepCopyObject().(client.ObjectList)
		err := r.page(ctx, page, append(options[:len(options):len(options)], client.Limit(size), client.Continue(token)))
		if errors.Is(err, errTooLarge) && size > 1 {
			size = max(size/8, 1)
			continue
		}
		if err != nil {
			return err
		}
		items, err := meta.ExtractList(page)
		if err != nil {
			return err
		}
		for _, item := range items {
			spent += wire.ObjectCost(item)
		}
		if spent > mostListed {
			return fmt.Errorf("a list of the workload cluster: %w", errResponseTooLarge)
		}
		all = append(all, items...)
		if token = page.GetContinue(); token == "" {
			into.SetResourceVersion(page.GetResourceVersion())
			return meta.SetList(into, all)
		}
	}
	return fmt.Errorf("a list of the workload cluster does not end: %w", errResponseTooLarge)
}

func (r pagedReader) page(ctx context.Context, page client.ObjectList, options []client.ListOption) error {
	ctx, done := granted(ctx)
	defer done()
	return r.Reader.List(ctx, page, options...)
}
