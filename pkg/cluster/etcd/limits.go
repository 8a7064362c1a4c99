package etcd

import (
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	// largestAnswer bounds the response of a member in bytes: the list of sixteen members takes three kilobytes.
	// Without a limit, etcd's client accepts two gigabytes from any peer, and grpc sixteen megabytes of headers.
	largestAnswer = 64 << 10
	// unread is how many bytes a member may send before they are read.
	unread = 64 << 10
	// longestList bounds the number of members in a list: five masters, one more for each that is replaced, and some
	// spare.
	longestList = 16
	// longestText bounds each name, address and alarm in bytes: the longest host name has 253 characters.
	longestText = 512
)

// errAtLength says that a member returned a list that the operator cannot have set up.
var errAtLength = errors.New("its list of members is longer than any that the operator makes")

// checkList rejects a member list that is too long or has long texts, because the list is kept in memory and reported
// in conditions.
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
