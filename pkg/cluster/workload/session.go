package workload

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/wire"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/patience"
)

const (
	// fillTimeout is how long the caches may take to be filled.
	fillTimeout = 60 * time.Second
	// watchGrace is how long a watch may be missing while the API server reports that it is ready. The reflector
	// retries after about one second and then after increasing pauses, so waiting longer does not help.
	watchGrace = 15 * time.Second
	// unreadyGrace is how long an API server may report that it is not ready while all watches are open, and askAgain
	// how often it is probed then.
	unreadyGrace = time.Minute
	askAgain     = 15 * time.Second
)

var (
	errNotFilled = errors.New("the caches were not filled in time")
	errNoWatch   = errors.New("a watch has ended and cannot be restarted")
	errLost      = errors.New("the connection to the workload cluster is lost")
)

// session is a filled cache and its clients over one link. It ends with the first failure, and the next session starts
// from scratch, because the pauses between client-go's own retries of a watch grow to a minute.
type session struct {
	link    *link
	options Options
	cache   cache.Cache
	client  client.Client
	live    client.Reader
	engine  *apply.Engine
	// kept is how many bytes of objects are cached.
	kept atomic.Int64
	// unready is since when the API server reports that it is not ready; zero while it is ready.
	unready time.Time

	// lost is done when the session has ended.
	lost context.Context // it is the lifetime of the session
	end  context.CancelFunc
	// stopped is closed when all goroutines of the cache have ended.
	stopped chan struct{}
}

// newSession begins to fill the caches. It calls changed for every relevant change; changed must not block.
func newSession(ctx context.Context, l *link, o Options, changed func()) (*session, error) {
	s := &session{link: l, options: o, stopped: make(chan struct{})}
	if err := s.makeClients(); err != nil {
		return nil, err
	}
	s.lost, s.end = context.WithCancel(ctx)
	for _, kind := range s.kinds() {
		if err := s.follow(kind, changed); err != nil {
			s.end()
			return nil, err
		}
	}
	go func() {
		defer close(s.stopped)
		_ = s.cache.Start(s.lost) // it ends only with the context
	}()
	return s, nil
}

func (s *session) makeClients() error {
	config, httpClient := s.link.config()
	// The link does not observe requests that the fence refuses, because they say nothing about the API server.
	httpClient.Transport = s.options.Fence.Transport(httpClient.Transport)
	var err error
	if s.cache, err = cache.New(config, s.cacheOptions()); err != nil {
		return err
	}
	options := client.Options{HTTPClient: httpClient, Scheme: s.options.Scheme, Mapper: s.options.Mapper}
	live, err := client.New(config, options)
	if err != nil {
		return err
	}
	options.Cache = &client.CacheOptions{Reader: s.cache, EnableReadYourWritesConsistency: ptr.To(true)}
	cached, err := client.New(config, options)
	if err != nil {
		return err
	}
	s.client, s.live = &boundedClient{Client: patience.New(cached, patience.Limit), session: s}, pagedReader{live}
	s.engine = apply.New(s.client, s.live, s.link.clock)
	s.engine.Adopts = key.Adopts
	return nil
}

func (s *session) cacheOptions() cache.Options {
	managed := labels.SelectorFromSet(labels.Set{key.LabelManagedBy: key.Operator})
	options := cache.Options{
		HTTPClient: clientOver(filling{s.link}), Scheme: s.options.Scheme, Mapper: s.options.Mapper,
		DefaultLabelSelector: managed, DefaultTransform: s.link.takeIn, ReaderFailOnMissingInformer: true,
		// The link has observed the error before.
		DefaultWatchErrorHandler: func(context.Context, *toolscache.Reflector, error) {},
		ByObject:                 map[client.Object]cache.ByObject{},
	}
	for _, kind := range s.options.Kinds {
		options.ByObject[kind] = cache.ByObject{Label: managed}
	}
	for _, kind := range followed() {
		options.ByObject[kind] = cache.ByObject{Label: labels.Everything()}
	}
	return options
}

// followed are the kinds that are cached regardless of who created the objects.
func followed() []client.Object {
	return []client.Object{&corev1.Node{}, &certificatesv1.CertificateSigningRequest{}}
}

func (s *session) kinds() []client.Object { return append(followed(), s.options.Kinds...) }

// follow calls changed when an object of the kind changes in a relevant way.
func (s *session) follow(kind client.Object, changed func()) error {
	if err := s.cache.IndexField(s.lost, kind, apply.IndexOwner, apply.OwnerOf); err != nil {
		return err
	}
	informer, err := s.cache.GetInformer(s.lost, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	tell := func(before, after client.Object) {
		if matters(before, after) {
			changed()
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			s.trackSize(nil, object)
			tell(nil, object.(client.Object))
		},
		UpdateFunc: func(before, after any) {
			s.trackSize(before, after)
			tell(before.(client.Object), after.(client.Object))
		},
		DeleteFunc: func(object any) {
			if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			s.trackSize(object, nil)
			tell(nil, object.(client.Object))
		},
	})
	return err
}

// trackSize adjusts the size of the cache after an object changed; nil means no object. If the cache becomes too large,
// the session ends.
func (s *session) trackSize(before, after any) {
	if s.kept.Add(wire.ObjectCost(after)-wire.ObjectCost(before)) > mostKept {
		s.link.noteWatches(0, errResponseTooLarge)
	}
}

// close ends the session and waits until all of it has stopped, which is quick because the connections are closed.
func (s *session) close() {
	s.end()
	s.link.close()
	<-s.stopped
}

// fill waits until the caches are filled and all watches are open.
func (s *session) fill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	filled := make(chan struct{})
	go func() {
		if s.cache.WaitForCacheSync(ctx) {
			close(filled)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return errNotFilled
		case <-filled:
			return nil
		case <-s.link.happened:
			if _, failure := s.link.tally(); failure != nil {
				return failure
			}
		}
	}
}

// keep returns what ended the session, or nil if the context did.
func (s *session) keep(ctx context.Context) error {
	for {
		if err := s.verify(ctx); err != nil {
			return err
		}
		var again <-chan time.Time
		if !s.unready.IsZero() {
			again = time.After(askAgain)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-s.link.happened:
		}
	}
}

// verify finds out what the end of a watch or the failure of a request means. It sends no request when watches end
// regularly and start again, as they do every few minutes; otherwise it probes the API server, whose response decides.
func (s *session) verify(ctx context.Context) error {
	limit := time.NewTimer(watchGrace)
	defer limit.Stop()
	last := errNoWatch
	for {
		open, failure := s.link.tally()
		complete := open >= len(s.kinds())
		if errors.Is(failure, errResponseTooLarge) {
			return failure
		}
		if failure != nil {
			last = failure
		}
		if failure != nil || !s.unready.IsZero() {
			if err := s.ask(ctx, complete); err != nil {
				return err
			}
		}
		if complete {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-limit.C:
			return last
		case <-s.link.happened:
		}
	}
}

// ask asks the API server whether it is ready. While all watches are open, the session does not end at once if it is
// not: a single check may have been slow, and reconnecting requests everything again. If the server stays unready, the
// session ends, because other masters may have one that is ready.
func (s *session) ask(ctx context.Context, complete bool) error {
	err := s.link.probe(ctx)
	switch {
	case err == nil:
		s.unready = time.Time{}
		return nil
	case s.unready.IsZero():
		s.unready = time.Now()
	}
	if complete && classify(err) == NotReady && time.Since(s.unready) < unreadyGrace {
		return nil
	}
	s.link.addresses.distrust(err)
	return err
}

// nodes lists the Nodes by name, without copying their content.
func (s *session) nodes() []corev1.Node {
	var list corev1.NodeList
	_ = s.cache.List(s.lost, &list, client.UnsafeDisableDeepCopy) // listing from the cache does not fail
	slices.SortFunc(list.Items, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return list.Items
}

// requests lists the foremost certificate signing requests of kubelets by name, without copying their content.
func (s *session) requests() []certificatesv1.CertificateSigningRequest {
	var list certificatesv1.CertificateSigningRequestList
	_ = s.cache.List(s.lost, &list, client.UnsafeDisableDeepCopy) // listing from the cache does not fail
	list.Items = slices.DeleteFunc(list.Items, func(r certificatesv1.CertificateSigningRequest) bool { return !ofKubelet(&r) })
	items := joining.Foremost(list.Items)
	slices.SortFunc(items, func(a, b certificatesv1.CertificateSigningRequest) int { return strings.Compare(a.Name, b.Name) })
	return items
}

// addOns lists the DaemonSets and Deployments that the operator applied, without copying their content.
func (s *session) addOns() ([]appsv1.DaemonSet, []appsv1.Deployment) {
	var daemonSets appsv1.DaemonSetList
	var deployments appsv1.DeploymentList
	// What the operator wrote a moment ago is not available yet, so the list need not wait until the cache has seen it.
	_ = s.cache.List(s.lost, &daemonSets, client.UnsafeDisableDeepCopy)
	_ = s.cache.List(s.lost, &deployments, client.UnsafeDisableDeepCopy)
	return daemonSets.Items, deployments.Items
}
