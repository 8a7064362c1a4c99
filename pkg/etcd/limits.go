package etcd

import (
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	// largestAnswer bounds an answer of a member in bytes: the list of sixteen members takes three kilobytes. Without a limit etcd's client
	// takes two gigabytes from whatever answers, and grpc sixteen megabytes of headers.
	largestAnswer = 64 << 10
	// unread is how many bytes a member may send that have not been asked for.
	unread = 64 << 10
	// longestList is how many a list may have: five masters, one more of each that is replaced, and some to spare.
	longestList = 16
	// longestText bounds each name, address and alarm: the longest name of a host has 253 characters.
	longestText = 512
)

// errAtLength: a member that answers so is not what the operator has set up.
var errAtLength = errors.New("its list of members is longer than any that the operator makes")

// checkList refuses a list of members that is kept in mind, and told of in conditions, if it is not one of a few short names.
func checkList(members []*etcdserverpb.Member) error {
	if len(members) > longestList {
		return errAtLength
	}
	for _, m := range members {
		for _, text := range slices.Concat([]string{m.Name}, m.PeerURLs, m.ClientURLs) {
			if len(text) > longestText {
				return errAtLength
			}
		}
	}
	return nil
}
