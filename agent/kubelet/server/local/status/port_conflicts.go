package status

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/api"
)

// These are the limits for the last lines of logs in a status.
const (
	maxLogsRead = 20              // number of logs that a status reads
	evidenceFor = 2 * time.Second // duration for all logs
)

func (s *Status) portConflicts(pods []*v1.Pod) map[types.UID][]string {
	if s.PortConflicts == nil {
		return nil
	}
	return s.PortConflicts(pods)
}

// addEvidence limits the number of troubles in a status, and adds the last log line of their containers. Lines that cannot be read
// within the time evidenceFor are left out.
func (s *Status) addEvidence(ctx context.Context, pods []*v1.Pod, st *api.Status) {
	st.MoreTroubles = max(0, len(st.Troubles)-maxTroubles)
	st.Troubles = st.Troubles[:len(st.Troubles)-st.MoreTroubles]
	ctx, cancel := context.WithTimeout(ctx, evidenceFor)
	defer cancel()
	read := 0
	for i := range st.Troubles {
		t := &st.Troubles[i]
		if t.ExitCode == nil || read == maxLogsRead || ctx.Err() != nil {
			continue
		}
		for _, p := range pods {
			if p.Namespace == t.Namespace && p.Name == t.Name {
				t.LastLine = s.LastLine(ctx, p, t.Container, *t.ExitCode)
				read++
				break
			}
		}
	}
}
