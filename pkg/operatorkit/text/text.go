// Package text shortens what people read, and takes out of it what changes with each attempt.
package text

import "strings"

const more = "…"

// Beginning returns a text of at most that many bytes: the whole text, or its beginning and an ellipsis. Invalid UTF-8
// in a beginning is removed.
func Beginning(of string, most int) string {
	if len(of) <= most {
		return of
	}
	return strings.ToValidUTF8(of[:max(0, most-len(more))], "") + more
}
