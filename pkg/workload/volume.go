package workload

import (
	"errors"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// mostAtOnce is how many bytes are read of one cluster at once, and mostPerSecond for how long it likes: somebody who owns a cluster may make
	// objects, or an API server that sends some, without end. The Nodes of a cluster of some thousand fit.
	mostAtOnce, mostPerSecond = 64 << 20, 1 << 20
	// mostKept is how many bytes of objects are kept of one cluster, as they are sent and after they have been trimmed.
	mostKept = 32 << 20
	// largestRefusal bounds what is read of the answer to a watch that is none.
	largestRefusal = 1 << 20
)

// errTooMuch ends a session. The next one is no better before there is less.
var errTooMuch = errors.New("the cluster sends, or has, more than the operator reads of one cluster")

// newAllowance is what may be read of one cluster, however often it is connected to.
func newAllowance() *rate.Limiter { return rate.NewLimiter(mostPerSecond, mostAtOnce) }

// size is that of an object as it is sent; zero for what has none.
func size(object runtime.Object) int64 {
	if sized, ok := object.(interface{ Size() int }); ok {
		return int64(sized.Size())
	}
	return 0
}
