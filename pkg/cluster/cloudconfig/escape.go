package cloudconfig

import "strings"

// unreserved are the bytes that stand for themselves in a data URL (RFC 2396, section 2.3).
var unreserved = func() (is [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.!~*'()") {
		is[c] = true
	}
	return is
}()

// escape percent-encodes a text as dataurl.EscapeString does, whose formatting of each byte took a fifth of the time of
// rendering.
func escape(text string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(text) + len(text)/2)
	for i := range len(text) {
		switch c := text[i]; {
		case unreserved[c]:
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}
