package plan

// removeUnneeded removes containers that are needed neither for the status nor for logs. For each name it keeps the
// newest container. It also keeps as many older containers that have ended as DeadLimit allows. The default is one.
func (p *planner) removeUnneeded() {
	for _, c := range p.Observed.Containers {
		newest, _ := p.Observed.Newest(c.Name)
		if c.ID == newest.ID || p.keepsContainer(c, newest) {
			continue
		}
		a := Action{Op: RemoveContainer, Container: c.Name, ID: c.ID}
		if c.MayRun() {
			a.Op, a.Grace = StopContainer, p.graceAfterHook(c, p.Grace)
		}
		p.startAction(a)
	}
}

// keepsContainer reports whether an older container that has ended is kept. Until the newest container is
// running, at least one older container is kept.
func (p *planner) keepsContainer(c, newest Container) bool {
	if c.State != Exited {
		return false
	}
	most := 1 + p.DeadLimit.More
	if newest.State != Running {
		most = max(most, 1)
	}
	if at := c.FinishedAt.Add(p.DeadLimit.MinAge); p.isFuture(at, p.DeadLimit.MinAge) {
		p.wakeAt(at)
		return true
	}
	newer := 0
	for _, o := range p.Observed.Containers {
		if o.Name == c.Name && o.State == Exited && o.Attempt > c.Attempt {
			newer++
		}
	}
	return newer < most
}
