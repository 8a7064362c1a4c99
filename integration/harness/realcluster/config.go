package realcluster

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"text/template"
)

//go:embed config
var configs embed.FS

var templates = template.Must(template.New("").Option("missingkey=error").ParseFS(configs, "config/*"))

// writeConfig writes a file of config with its values.
func writeConfig(path, name string, values any) error {
	var content bytes.Buffer
	if err := templates.ExecuteTemplate(&content, name, values); err != nil {
		return fmt.Errorf("filling in %s: %w", name, err)
	}
	return os.WriteFile(path, content.Bytes(), 0o644)
}
