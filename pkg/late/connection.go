package late

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/giantswarm/microerror"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/patience"
)

// connection is the caches and clients of one session, from the moment its kinds exist until one is gone.
type connection struct {
	options Options
	// uids are those of the definitions.
	uids   string
	cache  cache.Cache
	client client.Client
	engine *apply.Engine

	// lost is done when the connection ends.
	lost    context.Context // it is the lifetime of the connection
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu sync.Mutex
	// noted is when an error of the watch of a kind was last logged, by kind and text.
	noted map[string]time.Time
}

// newConnection makes clients and informers. It sends no request.
func newConnection(ctx context.Context, o Options, uids string) (*connection, error) {
	c := &connection{options: o, uids: uids, noted: map[string]time.Time{}}
	c.lost, c.cancel = context.WithCancel(ctx)
	err := c.makeClients()
	for _, index := range o.Indexes {
		if err == nil {
			err = c.cache.IndexField(c.lost, index.Kind, index.Name, index.Values)
		}
	}
	for _, kind := range o.Kinds {
		if err == nil {
			err = c.cache.IndexField(c.lost, kind, apply.IndexOwner, apply.OwnerOf)
		}
		if err == nil {
			_, err = c.cache.GetInformer(c.lost, kind, cache.BlockUntilSynced(false))
		}
	}
	if err != nil {
		c.cancel()
		return nil, microerror.Mask(err)
	}
	return c, nil
}

func (c *connection) makeClients() error {
	o := c.options
	var err error
	if c.cache, err = cache.New(o.REST, cache.Options{
		HTTPClient: o.HTTP, Scheme: o.Scheme, Mapper: o.Mapper, ByObject: o.ByObject, DefaultTransform: o.Trim,
		ReaderFailOnMissingInformer: true, DefaultWatchErrorHandler: c.note,
	}); err != nil {
		return err
	}
	options := client.Options{HTTPClient: o.HTTP, Scheme: o.Scheme, Mapper: o.Mapper}
	live, err := client.New(o.REST, options)
	if err != nil {
		return err
	}
	options.Cache = &client.CacheOptions{Reader: c.cache, EnableReadYourWritesConsistency: ptr.To(true)}
	cached, err := client.New(o.REST, options)
	if err != nil {
		return err
	}
	c.client = patience.New(cached, patience.Limit)
	if o.Wrap != nil {
		c.client = o.Wrap(c.client)
	}
	c.engine = apply.New(c.client, live, o.Clock)
	c.engine.Adopts = o.Adopts
	return nil
}

// start fills the caches and calls filled then, unless the connection ends before.
func (c *connection) start(filled func()) {
	c.running.Go(func() {
		defer c.cancel()
		if err := c.cache.Start(c.lost); err != nil {
			c.options.Logger.Error(err, "the caches of a session have ended", "session", c.options.Name)
		}
	})
	c.running.Go(func() {
		if c.cache.WaitForCacheSync(c.lost) {
			filled()
		}
	})
}

// stop ends the connection and waits until all of it has ended.
func (c *connection) stop() {
	c.cancel()
	c.running.Wait()
}

// quiet is how long the same error of a watch is not logged again: client-go retries every few seconds, also while a
// definition is being deleted.
const quiet = 10 * time.Minute

// note logs an error of a watch, unless it says what is known: that the kind is gone, or that the connection is ending.
func (c *connection) note(_ context.Context, reflector *toolscache.Reflector, err error) {
	if c.lost.Err() != nil || apierrors.IsNotFound(err) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	kind := strings.TrimPrefix(reflector.TypeDescription(), "*")
	said := kind + ": " + string(apierrors.ReasonForError(err))
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, known := c.noted[said]; known && time.Since(last) < quiet {
		return
	}
	c.noted[said] = time.Now()
	c.options.Logger.Error(err, "a watch has ended and is restarted", "session", c.options.Name, "kind", kind)
}
