// Package text shortens what people read.
package text

import "strings"

const more = "…"

// Beginning is a text of at most so many bytes: the whole one, or its beginning and an ellipsis. What is no UTF-8 in a beginning is left out.
func Beginning(of string, most int) string {
	if len(of) <= most {
		return of
	}
	return strings.ToValidUTF8(of[:max(0, most-len(more))], "") + more
}
