// Package agent connects all parts of the node. It builds every part from one Config, connects the parts, runs them,
// and stops them in reverse order. The parts themselves are in other packages.
//
//	base <- disk <- node <- runtimeParts <- podParts <- clusterParts <- featureParts <- workerParts <- serverParts
//
// Each struct embeds the previous struct, so a part can only use parts that were built before it. It calls a later part
// through a cell of laterParts.
//
//	source --> desired --uid--> worker.Set <--uid-- observe <-- ctrd
//	             |                |   ^
//	             |  Changed(uid)  |   | Admit, Get, Forget
//	             v                v   |
//	           pods: verdicts, statuses --> outbox, server
//
// Most folders below agent contain several packages. device, volume, engine, resource and cluster also have a root
// package, which opens the whole folder. In pod, plugin, kubelet, change and host, package agent opens each package
// itself. Package main calls cli and doctor.
package agent
