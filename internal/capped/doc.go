// Package capped keeps the first bytes of an output whose length somebody else decides, such as the output of a program, a plugin or a
// container.
//
//	program, plugin, container --Write--> Buffer: at most Max bytes
//
// There is one such buffer, because a type that embeds a bytes.Buffer and limits Write has no limit: io.Copy calls ReadFrom.
package capped
