package sample

import "github.com/islet-edge/islet/metrics/process"

// Processes returns the processes in a cgroup and its descendants, at most the given number. Processes that end meanwhile
// are omitted.
func (s *Sampler) Processes(path string, most int) ([]process.Process, error) {
	pids, err := s.c.Cgroups.AllProcesses(path, most)
	if err != nil {
		return nil, err
	}
	out := make([]process.Process, 0, len(pids))
	for _, pid := range pids {
		if p, ok := s.c.Process.Process(pid); ok {
			out = append(out, p)
		}
	}
	return out, nil
}
