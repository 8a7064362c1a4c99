package cloudconfig

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/coreos/ignition/v2/config/v3_3/types"

	"github.com/kvm-operator/kvm-operator/pkg/bootdata"
)

// WithToken is an encoded private half as it is stored, with what a kubelet asks for its certificate with as another one has it, which was
// rendered later: a node that keeps its boot data for long has to be able to join with it. Where the two name no such file in common, the
// stored one stays as it is.
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

// ticketOf is the ticket in the unit of a master's member.
var ticketOf = regexp.MustCompile(`"TICKET=[^"]+"`)

// WithoutTicket is an encoded public half as it is stored, without the right of a master's member to begin with an empty disk: one that has
// run must not, although the node keeps its boot data for long. A half that gives no such right is returned as it is.
func WithoutTicket(stored string) (string, error) {
	config, err := decodeHalf(stored)
	if err != nil {
		return "", fmt.Errorf("the stored public half: %w", err)
	}
	at := slices.IndexFunc(config.Systemd.Units, func(u types.Unit) bool {
		return u.Name == etcdService && u.Contents != nil && ticketOf.MatchString(*u.Contents)
	})
	if at < 0 {
		return stored, nil
	}
	config.Systemd.Units[at].Contents = new(ticketOf.ReplaceAllString(*config.Systemd.Units[at].Contents, `"TICKET="`))
	return Encode(config)
}

func decodeHalf(text string) (config types.Config, err error) {
	raw, err := bootdata.Decode(text)
	if err != nil {
		return config, err
	}
	return config, json.Unmarshal(raw, &config)
}
