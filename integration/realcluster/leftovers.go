package realcluster

// RemoveLeftovers removes what clusters left on this machine outside of their state directories when the process that had
// started them was killed: cgroups, and temporary directories. Clusters of running processes are not touched. Start does
// it, too.
func RemoveLeftovers() error { return removeLeftovers() }
