# What `gpupool check-config` decides by its strict rules, for jq: a line for each node whose label and resources do
# not fit, or OK and how many nodes were judged.
[
  .items[]
  | select(.metadata.labels["nvidia.com/gpu.workload.config"] != null)
  | .metadata.name as $name
  | .metadata.labels["nvidia.com/gpu.workload.config"] as $use
  | [
      (.status.allocatable // .status.capacity // {})
      | to_entries[]
      | select((.key | startswith("nvidia.com/")) and (.value | tostring | test("^0+$") | not))
      | .key
    ] as $found
  | {
      name: $name,
      bad: (
        if ($found | length) != 1 then "\($found | length) resources"
        elif $use == "container" then
          (if $found[0] == "nvidia.com/gpu" then null else $found[0] end)
        elif $use == "vm-vgpu" then
          (if ($found[0] | test("-[0-9]+[A-Z]$")) then null else $found[0] end)
        elif $use == "vm-passthrough" then
          (if $found[0] == "nvidia.com/gpu" or ($found[0] | test("-[0-9]+[A-Z]$")) then $found[0] else null end)
        else "label \($use)" end
      )
    }
]
| sort_by(.name)
| (map(select(.bad != null)) | map("MISMATCH=\(.name) \(.bad)")) as $mismatches
| if ($mismatches | length) > 0 then $mismatches[] else "OK=\(length)" end
