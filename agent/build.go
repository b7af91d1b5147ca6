package agent

import "context"

// open opens every part of the agent, in the order of their dependencies. Each part embeds the parts that were opened
// before it. It reaches the parts that are opened after it through laterParts.
func open(ctx context.Context, b *base) (*serverParts, error) {
	e, err := openFeatures(ctx, b)
	if err != nil {
		return nil, err
	}
	// The workers are opened after the parts that they call. The eviction manager, which measures pods, is opened
	// together with the workers.
	w, err := openWorkers(e)
	if err != nil {
		return nil, err
	}
	// All parts are connected. From now on pods may start, if the runtime already responds.
	if err := w.observeOnce(ctx); err != nil {
		return nil, err
	}
	// The servers are opened last, so that no request reaches a part that does not exist yet.
	return openServers(ctx, w)
}

// openFeatures opens the parts that are needed to remove a pod completely. A cleanup needs no other parts.
func openFeatures(ctx context.Context, b *base) (*featureParts, error) {
	// The directories come first, because no other part may read or write files before this process has locked them.
	d, err := openDisk(ctx, b)
	if err != nil {
		return nil, err
	}
	// Then comes the node: its facts, the stored pods that it should run, its link to the API server, and the
	// recorder of events, which all later parts use.
	n, err := openNode(ctx, d)
	if err != nil {
		return nil, err
	}
	// The container runtime comes after the desired pods, because it reports changes of their containers at once.
	r, err := openRuntime(ctx, n)
	if err != nil {
		return nil, err
	}
	// Then come the pods: their sources, the decisions about them, and their statuses, which contain container IDs of
	// the runtime.
	p, err := openPods(ctx, r)
	if err != nil {
		return nil, err
	}
	// The cluster sends those statuses to the API server, and watches pods and objects there.
	c, err := openCluster(ctx, p)
	if err != nil {
		return nil, err
	}
	// The features come after the cluster, because devices and volumes read their claims from it.
	return newFeatures(ctx, c)
}
