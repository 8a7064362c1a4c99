package managementcluster

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"path"
)

// stages are the rules by which kwok plays a kubelet: without any, kwok refuses to start.
//
//go:embed stages/*.yaml
var stages embed.FS

// writeStages writes all stages to one file.
func writeStages(file string) error {
	entries, err := stages.ReadDir("stages")
	if err != nil {
		return fmt.Errorf("reading kwok's stages: %w", err)
	}
	var all bytes.Buffer
	for _, entry := range entries {
		content, err := stages.ReadFile(path.Join("stages", entry.Name()))
		if err != nil {
			return fmt.Errorf("reading kwok's stages: %w", err)
		}
		all.WriteString("---\n")
		all.Write(content)
	}
	if err := os.WriteFile(file, all.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing kwok's stages: %w", err)
	}
	return nil
}
