package qmp

import (
	"encoding/json"
	"log/slog"
	"strings"
)

// masked is a command that is logged without the secrets in it.
type masked []byte

// LogValue returns the command with every secret replaced.
func (m masked) LogValue() slog.Value { return slog.StringValue(string(Mask(json.RawMessage(m)))) }

// Mask replaces the secrets in a command object: the value of every key that ends in "password" (set_password,
// change-vnc-password, guest-set-user-password), the data of objects of type secret and lines for the human monitor
// that mention a password. Data that is not JSON is masked as a whole.
func Mask(command json.RawMessage) json.RawMessage {
	const hidden = "***"
	var value any
	if err := json.Unmarshal(command, &value); err != nil {
		return quote(hidden)
	}
	result, err := json.Marshal(mask(value, hidden))
	if err != nil {
		return quote(hidden)
	}
	return result
}

func mask(value any, hidden string) any {
	switch value := value.(type) {
	case []any:
		for i := range value {
			value[i] = mask(value[i], hidden)
		}
	case map[string]any:
		kind, _ := value["qom-type"].(string)
		for key, inner := range value {
			if isSecret(strings.ToLower(key), inner, kind) {
				inner = hidden
			}
			value[key] = mask(inner, hidden)
		}
	}
	return value
}

// isSecret decides by the key of a value and the type of the object that it belongs to.
func isSecret(key string, value any, kind string) bool {
	line, _ := value.(string)
	return strings.HasSuffix(key, "password") ||
		key == "data" && strings.HasPrefix(kind, "secret") ||
		key == "command-line" && (strings.Contains(line, "password") || strings.Contains(line, "secret"))
}
