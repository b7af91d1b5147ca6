package plan

import v1 "k8s.io/api/core/v1"

// startEphemeral starts each ephemeral container once, also while the pod initializes (KEP-277). An ephemeral
// container starts only while its target container is running. At any other time the attempt would fail.
func (p *planner) startEphemeral(sb Sandbox) {
	for i := range p.Want.Spec.EphemeralContainers {
		e := &p.Want.Spec.EphemeralContainers[i]
		start := Action{Op: StartContainer, Container: e.Name, Round: p.round, Hash: Hash((*v1.Container)(&e.EphemeralContainerCommon))}
		if t, ok := p.Observed.Newest(e.TargetContainerName); ok && t.State == Running {
			start.Target = t.ID
		}
		c, exists := p.Observed.Newest(e.Name)
		switch {
		case !exists:
			p.startAction(start)
		case c.State == Unknown || c.State == Running && c.SandboxID != sb.ID:
			p.stopContainer(c, Action{Grace: p.Grace})
		case c.State == Created && c.SandboxID == sb.ID:
			start.Attempt = c.Attempt
			p.startAction(start)
		case c.State == Created:
			start.Attempt = c.Attempt + 1
			p.startAction(start)
		}
	}
}
