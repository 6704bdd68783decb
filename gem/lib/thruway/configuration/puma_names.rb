# frozen_string_literal: true

require_relative "../support/puma_version"

module Thruway
  # The part of the module `Puma` that configuration files use. Only such files know the module as
  # `Puma`, so that no library takes the server for Puma. With a plugin, `PumaLibrary` decides which
  # module the rest of the process finds under this name.
  module PumaNames
    module Const
      PUMA_VERSION = VERSION = Thruway::PUMA_VERSION
      CODE_NAME = "Into the Arena"
      PUMA_SERVER_STRING = "puma #{VERSION} #{CODE_NAME}"
    end

    # The parts that configuration files may use, loaded for plugins only.
    PLUGIN_PARTS = %i[Plugin Plugins PluginRegistry DSL Events LogWriter UnknownPlugin].freeze

    IS_JRUBY = IS_WINDOWS = IS_OSX = false
    IS_MRI = IS_LINUX = HAS_FORK = HAS_UNIX_SOCKET = HAS_SSL = HAS_NATIVE_IO_WAIT = true

    module_function

    def jruby? = IS_JRUBY
    def windows? = IS_WINDOWS
    def osx? = IS_OSX
    def mri? = IS_MRI
    def linux? = IS_LINUX
    def forkable? = HAS_FORK
    def ssl? = HAS_SSL
    def abstract_unix_socket? = true

    def set_thread_name(name)
      Thread.current.name = "puma #{name}"
    end

    # Other constants come from Puma itself, or from its stand-in.
    def self.const_missing(name)
      require_relative "puma_library"
      PumaLibrary.load if PLUGIN_PARTS.include?(name)
      is_other = Object.const_defined?(:Puma) && !::Puma.equal?(self)
      return ::Puma.const_get(name) if is_other
      return const_get(name, false) if const_defined?(name, false)

      raise NameError.new(PumaLibrary.explain_missing(name), name, receiver: self)
    end
  end
end
