package cgroup

import (
	"fmt"
	"path"
)

// maxDepth is the maximum depth of the descendants in which AllProcesses looks.
const maxDepth = 8

// AllProcesses returns the PIDs of the processes in a cgroup and its descendants, at most the given number. It returns no
// PIDs if the cgroup does not exist.
func (r Reader) AllProcesses(name string, most int) (pids []int, err error) {
	level := []string{name}
	for range maxDepth {
		var next []string
		for _, p := range level {
			more, err := r.Processes(p)
			if err != nil {
				return nil, fmt.Errorf("list processes: %w", err)
			}
			if pids = append(pids, more...); len(pids) >= most {
				return pids[:most], nil
			}
			children, err := r.Children(p)
			if err != nil {
				return nil, err
			}
			for _, c := range children[:min(len(children), maxChildren-len(next))] {
				next = append(next, path.Join(p, c))
			}
		}
		level = next
	}
	return pids, nil
}
