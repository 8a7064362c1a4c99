package cloudconfig

import (
	"github.com/coreos/ignition/v2/config/v3_3/types"
)

const (
	// ssoUser is the user as which holders of a signed SSH certificate log in.
	ssoUser = "giantswarm"
	// adminGroup exists on Flatcar, Debian and Fedora. Ignition fails on a group that does not exist, which is why the
	// original's group docker is left out; there is no docker either.
	adminGroup     = "sudo"
	trustedCAsFile = "/etc/ssh/trusted-user-ca-keys.pem"
)

// access gives people access: users with their own key and, if an SSH CA is trusted, holders of its certificates.
// No vendor's key is included.
func access(p Params) parts {
	sshd := asset("sshd.conf")
	all := parts{files: []file{
		// Users have no password that sudo could ask for.
		{path: "/etc/sudoers.d/kvm-operator", mode: 0o440, text: "%" + adminGroup + " ALL=(ALL) NOPASSWD: ALL\n"},
	}}
	if ca := p.Settings.SSOPublicKey; ca != "" {
		sshd += "TrustedUserCAKeys " + trustedCAsFile + "\n"
		all.files = append(all.files, file{path: trustedCAsFile, mode: modePublic, text: ca + "\n"})
		all.users = append(all.users, user(ssoUser, ""))
	}
	all.files = append(all.files, file{path: "/etc/ssh/sshd_config.d/10-kvm-operator.conf", mode: modeSecret, text: sshd})
	for _, u := range p.Cluster.Kubernetes.SSH.UserList {
		all.users = append(all.users, user(u.Name, u.PublicKey))
	}
	return all
}

func user(name, publicKey string) types.PasswdUser {
	u := types.PasswdUser{Name: name, Groups: []types.Group{adminGroup}, Shell: new("/bin/bash")}
	if publicKey != "" {
		u.SSHAuthorizedKeys = []types.SSHAuthorizedKey{types.SSHAuthorizedKey(pasted(publicKey))}
	}
	return u
}
