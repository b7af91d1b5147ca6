// Package stats serves measurements of the node, of its pods and of the agent.
//
//	Usage (agent/resource/usage) ----------+--> /stats/summary, /metrics/resource, /metrics/cadvisor
//	bytes written to the disk -------------|--> /stats/flash
//	Pods, Runtime: numbers of pods --------+--> /metrics
//	collectors of all parts of the agent --'--> /metrics, /metrics/probes
//
// Everything is measured during a request.
package stats
