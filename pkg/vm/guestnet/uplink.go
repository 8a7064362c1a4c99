package guestnet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const (
	// filterPriority is before the filters that others may have on the interface.
	filterPriority = 1
	filterHandle   = 0x75

	actionDrop     = 2          // TC_ACT_SHOT
	actionContinue = 0xffffffff // TC_ACT_UNSPEC: the next filter decides
)

// filter attaches the filters of leaving and keptOutside to both directions of the uplink. It uses the kernel's traffic
// control with classic BPF, which needs no tool, no capability except CAP_NET_ADMIN, and no writable /proc/sys.
func (n *Network) filter() error {
	if err := n.removeFilter(); err != nil {
		return err
	}
	uplink, err := n.link(n.config.Interface)
	if err != nil {
		return err
	}
	if !n.config.Clsact {
		qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: uplink.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
		}}
		if err := n.handle.QdiscAdd(qdisc); err != nil {
			return fmt.Errorf("adding the qdisc clsact: %w", err)
		}
		n.after("add the qdisc")
	}
	out, err := n.outgoing()
	if err != nil {
		return fmt.Errorf("assembling a filter: %w", err)
	}
	in, err := assemble(keptOutside(n.config.MAC), actionDrop, actionContinue)
	if err != nil {
		return fmt.Errorf("assembling a filter: %w", err)
	}
	if err := addFilter(uplink, netlink.HANDLE_MIN_EGRESS, out); err != nil {
		return err
	}
	return addFilter(uplink, netlink.HANDLE_MIN_INGRESS, in)
}

// outgoing returns the program for what leaves the pod.
func (n *Network) outgoing() ([]bpf.RawInstruction, error) {
	if n.foreignSources {
		return assemble(keptInside(), actionDrop, actionContinue)
	}
	return leaving(n.config)
}

// removeFilter removes our filters, and also the qdisc if it is ours.
func (n *Network) removeFilter() error {
	uplink, err := n.link(n.config.Interface)
	if err != nil {
		return err
	}
	present, err := hasClsact(n.handle, uplink)
	if err != nil || !present {
		return err
	}
	if !n.config.Clsact {
		return n.handle.QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: uplink.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
		}})
	}
	for _, parent := range []uint32{netlink.HANDLE_MIN_EGRESS, netlink.HANDLE_MIN_INGRESS} {
		err := n.handle.FilterDel(&netlink.BpfFilter{FilterAttrs: filterAttributes(uplink, parent)})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("removing a filter: %w", err)
		}
	}
	return nil
}

func filterAttributes(link netlink.Link, parent uint32) netlink.FilterAttrs {
	return netlink.FilterAttrs{
		LinkIndex: link.Attrs().Index, Parent: parent, Handle: filterHandle, Priority: filterPriority, Protocol: unix.ETH_P_ALL,
	}
}

// addFilter adds a filter. It encodes the message itself, because the netlink package supports only filters with
// extended BPF, which needs more capabilities to load.
func addFilter(link netlink.Link, parent uint32, instructions []bpf.RawInstruction) error {
	attributes := filterAttributes(link, parent)
	request := nl.NewNetlinkRequest(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	request.AddData(&nl.TcMsg{
		Family: nl.FAMILY_ALL, Handle: attributes.Handle, Parent: attributes.Parent,
		Ifindex: int32(attributes.LinkIndex), //nolint:gosec // G115: the kernel gave it as an int32
		Info:    netlink.MakeHandle(attributes.Priority, nl.Swap16(attributes.Protocol)),
	})
	request.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("bpf")))
	options := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	options.AddRtAttr(nl.TCA_BPF_OPS_LEN, nl.Uint16Attr(length16(len(instructions))))
	options.AddRtAttr(nl.TCA_BPF_OPS, encode(instructions))
	options.AddRtAttr(nl.TCA_BPF_FLAGS, nl.Uint32Attr(nl.TCA_BPF_FLAG_ACT_DIRECT))
	request.AddData(options)
	if _, err := request.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("adding a filter: %w", err)
	}
	return nil
}

// encode encodes instructions as an array of struct sock_filter.
func encode(instructions []bpf.RawInstruction) []byte {
	var buffer bytes.Buffer
	for _, i := range instructions {
		// A write to a buffer does not fail.
		_ = binary.Write(&buffer, binary.NativeEndian, unix.SockFilter{Code: i.Op, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	return buffer.Bytes()
}
