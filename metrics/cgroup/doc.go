// Package cgroup reads the resource usage of cgroups, on cgroup v1 and v2.
//
//	Reader --a few files for Read, all for ReadDetails--> Figures, Details
//	Recent: the same, read once for all callers within a short time
//
// Files are opened relative to the cgroup's directory and read into a reused buffer, because one
// scrape reads hundreds of them. Figures of a missing file are zero, for example if the kernel does
// not have the controller, or the cgroup was removed meanwhile.
// https://docs.kernel.org/admin-guide/cgroup-v2.html
package cgroup
