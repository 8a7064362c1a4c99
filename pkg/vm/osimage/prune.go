package osimage

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/slots"
)

var slotPattern = regexp.MustCompile(`^.+-[0-9a-f]{16}$`)

// Prune removes the images that have not been used for as long as keep and that are neither in use nor being
// downloaded, and leftovers of broken downloads. It never waits, and touches only entries that belong to images. If the
// cache is read-only, it does nothing.
func (c *Cache) Prune(ctx context.Context, keep time.Duration) error {
	err := slots.Prune(ctx, c.Directory, slotPattern, keep, func(name string) { c.tell("pruned %s, unused for %s", name, keep) })
	if err != nil {
		return fmt.Errorf("pruning images: %w", err)
	}
	return nil
}
