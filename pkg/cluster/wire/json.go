package wire

// token is how much memory a part of JSON takes: an interface, an entry of a map, a header.
const token = 160

// JSONCost returns how many bytes of memory JSON takes once it is decoded into maps and slices. The error is
// ErrTooLarge if that is more than most.
func JSONCost(data []byte, most int64) (int64, error) {
	cost, depth := 2*int64(len(data)), 0
	text, escaped := false, false
	for _, c := range data {
		switch {
		case escaped:
			escaped = false
		case text:
			escaped = c == '\\'
			text = c != '"'
		case c == '"':
			text = true
		case c == '{', c == '[':
			cost += token
			depth++
		case c == '}', c == ']':
			depth--
		case c == ',':
			cost += token
		}
		if cost > most || depth > deepest {
			return cost, ErrTooLarge
		}
	}
	return cost, nil
}
