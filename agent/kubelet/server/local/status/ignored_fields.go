package status

import (
	"cmp"
	"sort"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/kubelet/server/podlist"
	"github.com/islet-edge/islet/internal/api"
)

// podsWithIgnored returns the pods that have fields without effect. It omits pods that have ended or are
// being deleted.
func (s *Status) podsWithIgnored(pods []*v1.Pod) (list []api.Ignored) {
	if s.IgnoredFields == nil {
		return nil
	}
	for _, p := range pods {
		if podlist.IsEnding(p) {
			continue
		}
		if fields, _ := s.IgnoredFields(p); len(fields) > 0 {
			list = append(list, api.Ignored{Namespace: p.Namespace, Name: p.Name, Fields: fields})
		}
	}
	// slices.SortFunc would add 20 KB to the binary for each type of element.
	sort.Slice(list, func(i, j int) bool {
		return cmp.Or(cmp.Compare(list[i].Namespace, list[j].Namespace), cmp.Compare(list[i].Name, list[j].Name)) < 0
	})
	return list[:min(len(list), maxTroubles)]
}
