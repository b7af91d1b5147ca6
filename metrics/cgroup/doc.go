// Package cgroup reads what a cgroup has used, on cgroup v1 and v2.
package cgroup
