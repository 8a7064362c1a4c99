package undecodable

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/giantswarm/microerror"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kind is a kind whose informer tolerates objects that cannot be decoded.
type Kind struct {
	// Object and List are the Go types.
	Object client.Object
	List   client.ObjectList
	// Resource is where the API server has the objects.
	Resource schema.GroupVersionResource
	// Selector selects some of them; nil selects all.
	Selector labels.Selector
}

// NewInformer creates an informer, as toolscache.NewSharedIndexInformer does.
type NewInformer func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// Informers creates the informers of the kinds, and those of other kinds as usual.
func Informers(config *rest.Config, by *http.Client, scheme *runtime.Scheme, kinds ...Kind) (NewInformer, error) {
	sources := map[reflect.Type]toolscache.ListerWatcher{}
	for _, kind := range kinds {
		source, err := kind.source(config, by, scheme)
		if err != nil {
			return nil, err
		}
		sources[reflect.TypeOf(kind.Object)] = source
	}
	return func(usual toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if source, ok := sources[reflect.TypeOf(object)]; ok {
			usual = source
		}
		return toolscache.NewSharedIndexInformer(usual, object, resync, indexers)
	}, nil
}

// source lists and watches the objects of a kind.
func (k Kind) source(config *rest.Config, by *http.Client, scheme *runtime.Scheme) (toolscache.ListerWatcher, error) {
	config = rest.CopyConfig(config)
	version := k.Resource.GroupVersion()
	config.GroupVersion, config.APIPath = &version, "/apis"
	config.NegotiatedSerializer = negotiator{serializer.WithoutConversionCodecFactory{CodecFactory: serializer.NewCodecFactory(scheme)}}
	// Only JSON is decoded object by object here.
	config.AcceptContentTypes, config.ContentType = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c, err := rest.RESTClientForConfigAndClient(config, by)
	if err != nil {
		return nil, microerror.Mask(err)
	}
	parameters := runtime.NewParameterCodec(scheme)
	request := func(options metav1.ListOptions) *rest.Request {
		if k.Selector != nil {
			options.LabelSelector = k.Selector.String()
		}
		return c.Get().Resource(k.Resource.Resource).VersionedParams(&options, parameters)
	}
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := k.List.DeepCopyObject()
			return list, request(options).Do(ctx).Into(list)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			return request(options).Watch(ctx)
		},
	}, nil
}
