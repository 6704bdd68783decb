# frozen_string_literal: true

# Starts the boot in every Ruby below `thruway run`. It is loaded in the place of RubyGems
# (RUBYLIB), the first feature that Ruby requires by itself. At its end it requires RubyGems, which
# comes from the pack. A Ruby without RubyGems comes to it after the features of its command line
# (RUBYOPT). RUBYOPT names `run.rb` twice: when Ruby requires that again, the boot takes our names
# out of $LOADED_FEATURES. This has to work in any Ruby, and does nothing where there is no
# extension for it.

$LOAD_PATH.delete_if { |folder| folder.end_with?("/thruway/first") }

start = lambda do
  version = RUBY_VERSION[/\A\d+\.\d+/]
  folders = ENV.fetch("THRUWAY_EXTENSIONS", File.dirname(__dir__)).split(":")
  suffix = RUBY_PLATFORM.include?("darwin") ? "bundle" : "so"
  extensions = folders.map { |folder| "#{folder}/#{version}/thruway.#{suffix}" }
  extension = extensions.find { |path| File.file?(path) }
  next false unless RUBY_ENGINE == "ruby" && extension

  was_defined = Object.const_defined?(:Thruway)
  require extension
  boot = Thruway::Boot
  template = Thruway.const_defined?(:Template) && Thruway::Template
  Object.send(:remove_const, :Thruway) unless was_defined
  # While there are few features; later on Ruby asks for the real path of each of them again.
  $LOADED_FEATURES.delete(extension)
  # RUBYLIB has the folder of the gem only where RUBYOPT cannot name `run.rb` by its path.
  library = File.dirname(__dir__, 2)
  library = nil unless library.match?(/\s/)
  boot.take_over(lambda do
    own = ["/thruway/run.rb", "/thruway/first/rubygems.rb"]
    own = $LOADED_FEATURES.select { |path| path.end_with?(*own) }
    own.each { |path| $LOADED_FEATURES.delete(path) }
    # The rest is done once. What RUBYLIB has comes last; a program may name the folder, too.
    index = library && $LOAD_PATH.rindex(library)
    library = nil
    $LOAD_PATH.delete_at(index) if index
    # A child comes back from there.
    native, template = template, nil
    if native
      load("#{File.dirname(__dir__)}/preload/preload_template.rb", namespace = Module.new)
      namespace::Template.new(native).run
    end
  end)
rescue LoadError
  # Built for another platform.
  false
end

tell = lambda do
  is_second = $LOADED_FEATURES.any? { |path| path.end_with?("/thruway/first/rubygems.rb") }
  next if is_second || !ENV.fetch("THRUWAY_BOOT", "").split(",").include?("explain")

  warn "thruway: everything is left to Ruby: the gem is not built for #{RUBY_DESCRIPTION}"
end

start.call || tell.call

# Ruby marks the part that it wants by a module of its name.
require "rubygems" if defined?(Gem)
