package cloudconfig

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/coreos/ignition/v2/config/v3_3/types"

	"github.com/kvm-operator/kvm-operator/pkg/vm/bootdata"
)

// WithToken returns a stored encoded private half in which the file with the kubelet's bootstrap token is replaced by
// that of a half that was rendered later: a node that keeps its boot data for long has to be able to join with it. If
// one of them has no such file, the stored half is not changed.
func WithToken(stored, rendered string) (string, error) {
	old, err := decodeHalf(stored)
	if err != nil {
		return "", fmt.Errorf("the stored private half: %w", err)
	}
	latest, err := decodeHalf(rendered)
	if err != nil {
		return "", err
	}
	isBootstrap := func(f types.File) bool { return f.Path == bootstrapKubeconfig }
	to, from := slices.IndexFunc(old.Storage.Files, isBootstrap), slices.IndexFunc(latest.Storage.Files, isBootstrap)
	if to < 0 || from < 0 {
		return stored, nil
	}
	old.Storage.Files[to] = latest.Storage.Files[from]
	return Encode(old)
}

// tokenInUnit matches the token in the unit of a master's member.
var tokenInUnit = regexp.MustCompile(`"TICKET=[^"]+"`)

// WithoutFoundingToken returns a stored encoded public half without the permission for a master's member to start with an
// empty disk: a member that has run must not, although the node keeps its boot data for long. A half without this
// permission is returned as it is.
func WithoutFoundingToken(stored string) (string, error) {
	config, err := decodeHalf(stored)
	if err != nil {
		return "", fmt.Errorf("the stored public half: %w", err)
	}
	at := slices.IndexFunc(config.Systemd.Units, func(u types.Unit) bool {
		return u.Name == etcdService && u.Contents != nil && tokenInUnit.MatchString(*u.Contents)
	})
	if at < 0 {
		return stored, nil
	}
	config.Systemd.Units[at].Contents = new(tokenInUnit.ReplaceAllString(*config.Systemd.Units[at].Contents, `"TICKET="`))
	return Encode(config)
}

func decodeHalf(text string) (config types.Config, err error) {
	raw, err := bootdata.Decode(text)
	if err != nil {
		return config, err
	}
	return config, json.Unmarshal(raw, &config)
}
