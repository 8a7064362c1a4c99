// Package cloudmetadata lists the addresses of the metadata services of clouds, which return credentials and the
// configuration of the node. No guest may reach them.
package cloudmetadata

// LinkLocal is the IPv4 network in which AWS, Azure, Google, OpenStack and others have their service.
const LinkLocal = "169.254.0.0/16"

// Networks are those of the other services, as CIDR.
var Networks = []string{
	"fd00:ec2::/32",          // AWS: instance metadata at ::254, credentials of pods at ::23
	"fd20:ce::254/128",       // Google Cloud
	"fd00:c1::a9fe:a9fe/128", // Oracle Cloud
	"192.0.0.192/32",         // Oracle Cloud, classic
	"100.100.100.200/32",     // Alibaba Cloud
	"168.63.129.16/32",       // Azure: certificates and configuration of the node
	"fd00:42::42/128",        // Scaleway
}
