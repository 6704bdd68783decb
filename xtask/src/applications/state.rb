# frozen_string_literal: true

# The state of an application that has booted, as lines of text. Each line is the same in every
# process that has booted the application in one environment.
class BootedState
  # Differences that docs/reference/verbs/run.md lists: methods, and variables that name the boot's
  # files.
  OWN_METHODS = %w[RubyVM::InstructionSequence.load_iseq Gem::BasicSpecification#have_file?].freeze
  OWN_VARIABLES =
    /\A(?:(?:BUNDLER_ORIG_)?(?:RUBYOPT|RUBYLIB)|STATE_.*|THRUWAY_.*|_|SHLVL|OLDPWD)\z/.freeze
  NAME = Module.instance_method(:name)

  # `own` are the folders of Thruway's own features.
  def initialize(own)
    @own = own
  end

  def lines
    application = defined?(Rails.application) && Rails.application
    application ? application.eager_load! : load_rack
    [*(application ? rails(application) : []), *translations, *modules, *surroundings]
  end

  private

  def load_rack
    require "rack"
    Rack::Builder.parse_file("config.ru")
  end

  def rails(application)
    application.reload_routes! if application.routes.routes.none?
    routes = application.routes.routes.map do |route|
      "route #{route.verb} #{route.path.spec} #{route.name} #{plain(route.defaults)}"
    end
    initializers = application.initializers.tsort_each.map { |one| "initializer #{one.name}" }
    routes + application.middleware.map { |one| "middleware #{one.name}" } + initializers
  end

  def translations
    return [] unless defined?(I18n) && I18n.backend.respond_to?(:translations, true)

    I18n.available_locales
    I18n.backend.send(:translations).flat_map do |locale, texts|
      texts.map { |key, text| "translation #{locale}.#{key} #{plain(text)}" }
    end
  end

  # A value without the addresses of objects.
  def plain(value)
    case value
    when Hash then value.map { |key, inner| "#{plain(key)}: #{plain(inner)}" }.sort.join(", ")
    when Array then value.map { |inner| plain(inner) }.join(", ")
    when Proc then "block at #{place(value)}"
    when String, Symbol, Numeric, true, false, nil then value.inspect
    else value.class.name
    end
  end

  # By way of constants: a module that nothing names any more may have been collected, or not.
  def modules
    seen = {}.compare_by_identity
    waiting = [Object]
    while (mod = waiting.pop)
      next if seen[mod] || name_of(mod).start_with?("Thruway")

      seen[mod] = describe(mod)
      waiting.concat(inner_modules(mod))
    end
    seen.values
  end

  def inner_modules(mod)
    mod.constants(false).sort.filter_map do |constant|
      next if mod.autoload?(constant, false)

      value = mod.const_get(constant, false)
      value if Module === value
    rescue Exception # rubocop:disable Lint/RescueException -- a constant may do anything when it is asked for
      nil
    end
  end

  def describe(mod)
    name = name_of(mod)
    visible = mod.instance_methods(false) + mod.private_instance_methods(false)
    own = visible.sort.reject { |method| OWN_METHODS.include?("#{name}##{method}") }
    own = own.map { |method| "#{method}@#{place(mod.instance_method(method))}" }
    singleton = mod.singleton_methods(false).sort
    singleton = singleton.reject { |method| OWN_METHODS.include?("#{name}.#{method}") }
    ancestors = mod.ancestors.map { |one| name_of(one) }
    constants = mod.constants(false).sort - [:Thruway]
    ["module", name, "<", *ancestors, ":", *own, ";", *singleton, ";", *constants].join(" ")
  end

  def name_of(mod) = NAME.bind_call(mod) || "anonymous"

  def place(callable) = callable.source_location&.join(":")

  def surroundings
    variables = ENV.sort.reject { |name, _| name.match?(OWN_VARIABLES) }
    streams = [Encoding.default_external, Encoding.default_internal, $stdout.external_encoding]
    [*without_own($LOADED_FEATURES).map { |feature| "feature #{feature}" },
     *without_own($LOAD_PATH.map(&:to_s)).map { |folder| "load path #{folder}" },
     *variables.map { |pair| "variable #{pair.join("=")}" },
     "encodings #{streams.inspect}", "folder #{Dir.pwd}", "program #{$PROGRAM_NAME}",
     "umask #{File.umask}"]
  end

  def without_own(paths) = paths.reject { |path| path.start_with?(*@own) }
end

# Some constants warn when they are asked for.
$VERBOSE = nil
lines = BootedState.new(ENV.fetch("STATE_OWN").split(":")).lines
File.write(ENV.fetch("STATE_FILE"), lines.map { |line| "#{line.gsub("\n", "\\n")}\n" }.join)
