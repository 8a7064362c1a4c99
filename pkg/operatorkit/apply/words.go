package apply

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/hold"
)

const (
	// wordsHold is how long the words of one denial stand for later ones of the same request.
	wordsHold = 10 * time.Second
	// mostWords bounds how many denials are remembered.
	mostWords = 1000
)

// words are the reasons that denied requests got. Webhooks and quotas choose these words, and some choose other ones each time,
// such as the number of the request. A condition with such words would be written with each pass, and each of these
// writes would cause the next pass. In a workload cluster, its users choose them.
type words struct{ hold.Held[string, string] }

// steady returns the words for a denial of a request: those of a moment ago, or else the given ones.
func (w *words) steady(request, text string, now time.Time) string {
	if before, left := w.Get(request, now); left > 0 {
		return before
	}
	if w.Len(now) < mostWords {
		w.Put(request, text, now, wordsHold)
	}
	return text
}

// inSteadyWords returns an error of a request whose text stays the same for some time, if others choose it.
func (e *Engine) inSteadyWords(err error) error {
	var r *RequestError
	if errors.As(err, &r) && isWorded(r.Err) {
		r.text = e.words.steady(r.Verb+" "+r.Object, stable(r.Err), e.clock.Now())
	}
	return err
}

// isWorded returns whether the text of an error is repeated as it is.
func isWorded(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err)
}
