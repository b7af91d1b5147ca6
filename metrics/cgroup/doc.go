// Package cgroup reads what a cgroup has used, on cgroup v1 and v2.
//
//	Reader --a few files for Read, all for ReadDetails--> Figures, Details
//	Recent: the same, read once for all who ask within a short time
//
// Files are opened below the cgroup's directory and read into one buffer: hundreds of
// them are read for one scrape. What is missing, for a controller that the kernel does
// not have or for a cgroup that went while it was read, is zero.
// https://docs.kernel.org/admin-guide/cgroup-v2.html
package cgroup
