package managementcluster

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
)

// stages are the rules by which kwok plays a kubelet. kwok refuses to start without any.
//
//go:embed stages/*.yaml stages/optional/*.yaml
var stages embed.FS

// writeStages writes all stages to one file, including the named optional ones.
func writeStages(file string, optional ...string) error {
	files, err := fs.Glob(stages, "stages/*.yaml")
	if err != nil {
		return fmt.Errorf("reading kwok's stages: %w", err)
	}
	for _, name := range optional {
		files = append(files, path.Join("stages/optional", name+".yaml"))
	}
	var all bytes.Buffer
	for _, name := range files {
		content, err := stages.ReadFile(name)
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
