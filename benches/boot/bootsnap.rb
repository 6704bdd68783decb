# frozen_string_literal: true

# As `require "bootsnap/setup"`, where BENCH_BOOTSNAP names the folder of a cache. It is loaded
# twice: before bundler/setup, which hides the gems that a Gemfile does not name, and after it.
if ENV["BENCH_BOOTSNAP"] && defined?(Bootsnap)
  Bootsnap.setup(
    cache_dir: ENV.fetch("BENCH_BOOTSNAP"),
    development_mode: false,
    load_path_cache: true,
    compile_cache_iseq: true,
    compile_cache_yaml: true,
    compile_cache_json: true
  )
elsif ENV["BENCH_BOOTSNAP"]
  require "msgpack"
  require "bootsnap"
end
