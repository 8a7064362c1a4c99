// Package ignitionapply runs the real Ignition binary against a directory, so that tests can check what a booting
// machine would make of rendered boot data.
//
// To do this by hand with the binary that `make tools` links to .tools/ignition:
//
//	IGNITION_CONFIG_FILE=config.ign ignition -platform file -stage fetch -root DIR -config-cache cache.json \
//		-state-file state.json -neednet neednet -log-to-stdout
//	ignition -platform file -stage files -root DIR -config-cache cache.json -state-file state.json -log-to-stdout
//
// The fetch stage reads IGNITION_CONFIG_FILE, validates it, resolves config.merge and writes the result to the cache;
// the files stage trusts the cache and writes users, files, links and units. Both stages are needed: the files stage
// alone reads any version of a config as the newest version and reports no mistakes.
package ignitionapply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// accounts are the files that every real root has and that useradd requires. The groups and the user core are those of
// Flatcar that configs may name without creating them.
var accounts = map[string]string{
	"etc/passwd": "root:x:0:0:root:/root:/bin/bash\ncore:x:500:500:core:/home/core:/bin/bash\n",
	"etc/shadow": "root:*:::::::\ncore:*:::::::\n",
	"etc/group":  "root:x:0:\nwheel:x:10:\nsudo:x:150:core\ndocker:x:233:core\ncore:x:500:\n",
}

// Apply applies an Ignition config to the directory root as the initrd of a booting machine would: binary's fetch stage
// validates it and its files stage writes it. Account files (etc/passwd, etc/shadow, etc/group) are created if root has
// none. Configs with passwd.users need root permissions because Ignition creates users by useradd in a chroot.
//
// The error for a rejected config contains Ignition's own messages, and root is then unchanged.
func Apply(ctx context.Context, binary string, config []byte, root string) error {
	scratch, err := newScratch(config)
	if err != nil {
		return fmt.Errorf("preparing Ignition's directories: %w", err)
	}
	defer os.RemoveAll(string(scratch))
	if err := copyTree(ctx, root, scratch.root()); err != nil {
		return err
	}
	if err := writeAccounts(scratch.root()); err != nil {
		return fmt.Errorf("preparing the account files: %w", err)
	}
	for _, stage := range []string{"fetch", "files"} {
		if err := runStage(ctx, binary, stage, scratch); err != nil {
			return err
		}
	}
	return copyTree(ctx, scratch.root(), root)
}

// scratch is a directory with Ignition's input, its state and the root it works on. The root is a copy because Ignition
// writes a user's keys with that user's permissions: the user must be able to reach the root, which is never true for a
// directory of testing.T.TempDir.
type scratch string

func (s scratch) root() string            { return filepath.Join(string(s), "root") }
func (s scratch) file(name string) string { return filepath.Join(string(s), name) }

func newScratch(config []byte) (scratch, error) {
	dir, err := os.MkdirTemp("", "ignition-apply-")
	if err != nil {
		return "", err
	}
	s := scratch(dir)
	err = errors.Join(
		os.Chmod(dir, 0o711),
		os.Mkdir(s.root(), 0o755),
		os.WriteFile(s.file("config.ign"), config, 0o600))
	if err != nil {
		os.RemoveAll(dir)
		return "", err
	}
	return s, nil
}

// copyTree copies the content of a directory with owners, modes and links, which os.CopyFS does not keep.
func copyTree(ctx context.Context, from, to string) error {
	if output, err := exec.CommandContext(ctx, "cp", "--archive", from+"/.", to).CombinedOutput(); err != nil {
		return fmt.Errorf("copying %s to %s: %w: %s", from, to, err, output)
	}
	return nil
}

func runStage(ctx context.Context, binary, stage string, scratch scratch) error {
	cmd := exec.CommandContext(ctx, binary,
		"-platform", "file", "-stage", stage, "-root", scratch.root(), "-log-to-stdout", "-fetch-timeout", "10s",
		"-config-cache", scratch.file("cache.json"),
		"-state-file", scratch.file("state.json"),
		"-neednet", scratch.file("neednet"))
	// The system configuration directory of the machine that runs the test must not be merged in.
	cmd.Env = append(os.Environ(),
		"IGNITION_CONFIG_FILE="+scratch.file("config.ign"), "IGNITION_SYSTEM_CONFIG_DIR="+string(scratch))
	output, err := cmd.Output()
	if err == nil {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("running Ignition: %w (run `make tools` in the repository root)", err)
	}
	return fmt.Errorf("ignition stage %s: %w\n%s", stage, err, complaints(string(output)))
}

// complaints keeps the lines of Ignition's log that report problems. Each line begins with its level.
func complaints(log string) string {
	var kept []string
	for line := range strings.Lines(log) {
		level, _, _ := strings.Cut(line, " ")
		if level != "INFO" && level != "DEBUG" {
			kept = append(kept, strings.TrimRight(line, "\n"))
		}
	}
	return strings.Join(kept, "\n")
}

func writeAccounts(root string) error {
	if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
		return err
	}
	for name, content := range accounts {
		file, err := os.OpenFile(filepath.Join(root, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		_, err = file.WriteString(content)
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	return nil
}
