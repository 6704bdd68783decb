# frozen_string_literal: true

# Required twice, and before anything else, by every Ruby below `thruway run`, which has switched
# RubyGems off (RUBYOPT). The first time it starts the boot; the second time, when Ruby has put this
# file's name into $LOADED_FEATURES, the boot takes it out again and loads what Ruby would have
# loaded.
#
# It has to work in any Ruby. Where there is no extension for it, it loads RubyGems and that is all.

# As Ruby's own gem_prelude.rb: a module that is there is a part that is wanted.
prelude = lambda do
  load_part = lambda do |feature, name|
    require feature
  rescue LoadError => e
    raise if e.path != feature

    warn "`#{name}' was not loaded."
  end
  if defined?(Gem)
    load_part.call("rubygems", "RubyGems")
    load_part.call("bundled_gems", "bundled_gems") if RUBY_VERSION >= "3.3"
  end
  load_part.call("error_highlight", "error_highlight") if defined?(ErrorHighlight)
  load_part.call("did_you_mean", "did_you_mean") if defined?(DidYouMean)
  load_part.call("syntax_suggest/core_ext", "syntax_suggest") if defined?(SyntaxSuggest)
end

start = lambda do
  version = RUBY_VERSION[/\A\d+\.\d+/]
  folders = ENV.fetch("THRUWAY_EXTENSIONS", __dir__).split(":")
  extensions = folders.map { |folder| "#{folder}/#{version}/thruway.so" }
  extension = extensions.find { |path| File.file?(path) }
  next false unless RUBY_ENGINE == "ruby" && extension

  loaded = $LOADED_FEATURES.dup
  was_defined = Object.const_defined?(:Thruway)
  require extension
  boot = Thruway::Boot
  Object.send(:remove_const, :Thruway) unless was_defined
  boot.take_over(__FILE__, loaded, prelude)
rescue LoadError
  # Built for another platform.
  false
end

# Without the extension, options are only looked for where they usually are.
fall_back = lambda do
  if ENV.fetch("THRUWAY_BOOT", "").split(",").include?("explain")
    warn "thruway: everything is left to Ruby: the gem is not built for #{RUBY_DESCRIPTION}"
  end
  arguments = File.read("/proc/self/cmdline").split("\0").drop(1)
  options = arguments.take_while { |word| word.start_with?("-") }
  off = options.grep(/\A--disable\b/).join(",").tr("-", "_")
  next if off.match?(/gem|all/)

  parts = { Gem: "gem", ErrorHighlight: "error_highlight", DidYouMean: "did_you_mean" }
  parts[:SyntaxSuggest] = "syntax_suggest" if RUBY_VERSION >= "3.2"
  parts.each { |name, part| Object.const_set(name, Module.new) unless off.include?(part) }
  prelude.call
end

fall_back.call unless start.call || defined?(Gem)
