package wire

// token is what a part of JSON costs in memory: an interface, an entry of a map, a header.
const token = 160

// JSONCost is the memory in bytes that JSON takes once it is decoded into maps and slices. The error is ErrTooLarge when that is more than
// most.
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
