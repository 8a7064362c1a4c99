package apply

import (
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// wordsHold is how long the words of one denial stand for later ones of the same request.
	wordsHold = 10 * time.Second
	// mostWords bounds how many denials are remembered.
	mostWords = 1000
)

// words remembers what denied requests were told. Webhooks and quotas choose these words, and some choose other ones each
// time, such as the number of the request. A condition with such words would be written with each pass, and each of these
// writes would cause the next pass. In a workload cluster, its users choose them.
type words struct {
	mu   sync.Mutex
	told map[string]told
}

// told are the words of a denial.
type told struct {
	text  string
	until time.Time
}

// steady returns the words for a denial of a request: those of a moment ago, or else the given ones.
func (w *words) steady(request, text string, now time.Time) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if before, known := w.told[request]; known && now.Before(before.until) {
		return before.text
	}
	delete(w.told, request)
	if len(w.told) >= mostWords {
		for other, t := range w.told {
			if !now.Before(t.until) {
				delete(w.told, other)
			}
		}
	}
	if w.told == nil {
		w.told = map[string]told{}
	}
	if len(w.told) < mostWords {
		w.told[request] = told{text: text, until: now.Add(wordsHold)}
	}
	return text
}

// forget forgets the words for a request that was accepted.
func (w *words) forget(request string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.told, request)
}

// inSteadyWords returns an error of a request whose text stays the same for a while, if others choose it.
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
