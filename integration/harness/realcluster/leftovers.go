package realcluster

// RemoveLeftovers removes what clusters left on this machine outside of their state directories when the process that
// had started them was killed: cgroups and temporary directories. It does not touch clusters of running processes.
// Start also does this.
func RemoveLeftovers() error { return removeLeftovers() }
